"""Errors of ssh and of the remote machine, and what to do about them."""

from catro_deploy.errors import DeviceError
from catro_deploy.transports.registry import Device

__all__ = ["explained", "is_final"]

NO_COMMAND = (126, 127)
# What a Python that cannot read the agent's first lines says, such as Python 2.
UNREADABLE = "SyntaxError"
# Part of ssh's message -> what is wrong, and what to do. The first match counts.
SSH = (
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "Its host key is not the one that ssh knows.",
     "If the device was reinstalled, remove the old key: ssh-keygen -R HOST. If not, this may be an attack."),
    ("Host key verification failed", "ssh does not know its host key.",
     "Log in once and compare the key: ssh {ssh}"),
    ("Permission denied", "It denies the login.",
     "Try it: ssh {ssh}. Put your public key there (ssh-copy-id {ssh}), or start your ssh-agent."),
    ("Could not resolve hostname", "The host name cannot be resolved.",
     "Check the name: catro-deploy device list; or add it to ~/.ssh/config."),
    ("Connection refused", "Nothing answers at its ssh port.",
     "Is sshd running there? It may still be starting."),
    ("No route to host", "There is no route to it.", "Is it switched on, and in this network?"),
    ("timed out", "It does not answer.", "Is it switched on, awake, and in this network?"),
    ("Bad configuration option", "Your ssh configuration is not valid.", "Try it: ssh {ssh}"),
)  # fmt: skip
# ssh's messages about host keys, for which retrying is pointless.
FINAL = ("REMOTE HOST IDENTIFICATION HAS CHANGED", "Host key verification failed")
LAST_LINES = 5


def is_final(said: str) -> bool:
    """Whether a new attempt would fail in the same way; ``said`` is ssh's standard error."""
    return any(sign.lower() in said.lower() for sign in FINAL)


def explained(device: Device, code: int, said: str) -> DeviceError:
    """The error for a call to ``device`` that exited with ``code`` and no result; ``said`` is its standard error."""
    lines = [line for line in said.strip().splitlines() if line.strip("@ ")][-LAST_LINES:]
    if code in NO_COMMAND or UNREADABLE in said:
        wanted = "Python" if code in NO_COMMAND else "Python 3.8 or later"
        return DeviceError(
            "\n".join([f"{device.name} ({device.ssh}) has no {wanted} at {device.python!r}.", *lines]),
            "Install Python 3.8 or later there, or say where it is: "
            f"catro-deploy device add {device.name} --force --python PATH",
        )
    for sign, problem, hint in SSH:
        if sign.lower() in said.lower():
            return DeviceError(
                "\n".join([f"{device.name} ({device.ssh}) cannot be reached. {problem}", *lines[-1:]]),
                hint.format(ssh=device.ssh),
            )
    how = "cannot be reached" if code == 255 else f"ended a call with code {code}"
    return DeviceError("\n".join([f"{device.name} ({device.ssh}) {how}.", *lines]), f"Try it: ssh {device.ssh}")
