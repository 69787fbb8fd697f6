"""All errors for users, in one tree.

    CatroError
    ├── UsageError                 exit 2: the request is wrong or impossible
    │   ├── SettingsError          a flag, catro.toml or run.toml
    │   ├── BudgetError            a budget that cannot be read or that no network can meet
    │   ├── TargetError            a target that is not known, not valid, or cannot be measured from here
    │   ├── DataError              images, folders, classes
    │   ├── ModelError             a model's name or factory, or a network that cannot be traced
    │   ├── CheckpointError        a weights file: missing, corrupt, or of another network
    │   ├── MessageError           a job, event or result: damaged, or of another version
    │   ├── ProfileError           a latency profile: missing, damaged, or of another device
    │   └── RunFolderError         a run folder: missing, incomplete, in use by another process
    ├── MissedError                exit 3: done, but the result does not meet the request
    └── FaultError                 exit 1: the machine or the library failed
        ├── DeviceError            a remote device that cannot be reached, or refuses the request
        ├── NumericsError          NaN or infinity where a finite number is required
        ├── StorageError           a file could not be read or written: disk full, no permission
        └── RuntimeMissingError    an inference runtime that is not installed or does not work

``CatroWarning`` is not an error: the Python API issues it for results that are probably not intended.

A message says what was requested, what was found, and what to do next. ``CatroError(problem, hint)`` keeps the last
part separate, so that the command line can style it differently.
"""

__all__ = [
    "BudgetError",
    "CatroError",
    "CatroWarning",
    "CheckpointError",
    "DataError",
    "DeviceError",
    "FaultError",
    "MessageError",
    "MissedError",
    "ModelError",
    "NumericsError",
    "ProfileError",
    "RunFolderError",
    "RuntimeMissingError",
    "SettingsError",
    "StorageError",
    "TargetError",
    "UsageError",
]


class CatroError(Exception):
    """Root of the tree. ``hint`` says in a full sentence what to do next, or is empty."""

    exit_code = 1

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem}\n{self.hint}" if self.hint else self.problem


class CatroWarning(UserWarning):
    """The Python API continues, but the result is probably not what was intended."""


class UsageError(CatroError):
    """The request is wrong or impossible."""

    exit_code = 2


class SettingsError(UsageError):
    """A flag or a settings file is wrong."""


class BudgetError(UsageError):
    """A budget cannot be read, or no network can meet it."""


class TargetError(UsageError):
    """A target is not known, its file is not valid, or networks cannot be run on it from here."""


class DataError(UsageError):
    """Images, folders or classes are missing or broken."""


class ModelError(UsageError):
    """A model's name or factory is wrong, or its network cannot be traced."""


class CheckpointError(UsageError):
    """A weights file is missing, corrupt, or of another network."""


class MessageError(UsageError):
    """A job, event or result is damaged, or of another version of catro-deploy."""


class ProfileError(UsageError):
    """A latency profile is missing, damaged, or of another device or network."""


class RunFolderError(UsageError):
    """A run folder is missing, incomplete, or in use."""


class MissedError(CatroError):
    """Everything was done, but the result does not meet the request."""

    exit_code = 3


class FaultError(CatroError):
    """The machine or a library failed."""


class DeviceError(FaultError):
    """A remote device cannot be reached, or refuses the request."""


class NumericsError(FaultError):
    """NaN or infinity where a finite number is required."""


class StorageError(FaultError):
    """A file could not be read or written: the disk is full, or permission is missing."""


class RuntimeMissingError(FaultError):
    """An inference runtime is not installed or does not work."""
