"""Stores the agent on a device, and starts it only if its hash is correct and no other user can change its folder.

The host sends this source with each call, as an argument of ``python -c``: no file on the device is trusted.
Arguments: folder, name and SHA-256 of the agent, a token of this host, then the action:

``install SIZE OFFSET``
    Read the agent from the standard input, from byte OFFSET on; the bytes before it have already arrived.
``run VERB ...``
    Replace this process with the agent. If the agent is missing, the answer is the event ``missing``.

Any Python from 3.6 on can parse this, so that an error names the version if it is too old.
"""

import grp
import hashlib
import json
import os
import pwd
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Refused", "arrived_bytes", "receive", "require_own"]

SUBFOLDERS = ("files", "jobs", "engines")
CHUNK_BYTES = 1 << 16
NEWER = "Install a newer one there, or say where it is: catro-deploy device add NAME --force --python PATH"
ELSEWHERE = "Name a folder that only you can write to: catro-deploy device add NAME --force --folder PATH"


class Refused(Exception):  # noqa: N818 - it becomes an error of the host
    """Problem and hint."""


def main(folder: str, name: str, digest: str, token: str, *action: str) -> None:
    """Install the agent, or run it; see above."""
    sys.stdout.write("\n")  # earlier output of a login shell may not end with a newline
    if sys.version_info < (3, 8):  # noqa: UP036 - the rest of the agent cannot be read by older ones
        _refuse(f"The agent needs Python 3.8 or later; {sys.executable} is {sys.version.split()[0]}.", NEWER)
    os.umask(0o077)
    try:
        _do(_home(folder) / name, digest, token, action)
    except OSError as error:
        problem = f"The agent could not be written to {folder}: {error.strerror}."
        _refuse(problem, f"Free some space on the device. {ELSEWHERE}")
    except Refused as error:
        _refuse(*error.args)


def _do(place: Path, digest: str, token: str, action: "tuple[str, ...]") -> None:
    require_own(place.parent)
    if action[0] == "install":
        place.parent.mkdir(parents=True, exist_ok=True)
        require_own(place.parent)
        if not receive(place, token, digest, int(action[1]), int(action[2]), sys.stdin.buffer):
            raise Refused("The agent did not arrive intact.", "Run the command again.")
        _say({"event": "result", "result": None})
    elif _hash_of(place) != digest:
        _say({"event": "missing", "arrived": arrived_bytes(place, token)})
    else:
        os.utime(place)  # it is in use: see Store.tidy
        with suppress(BrokenPipeError):  # the connection of the host was cut; keep what has arrived
            sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, str(place), *action[1:]])


def require_own(home: Path) -> None:
    """Ensure that only this user and root can change files in ``home``, and only this user can read its models.

    Raises:
        Refused: another user owns or may write to the folder, or one above it up to this user's home or the root.
    """
    for path in (home, home.resolve()):
        for part in _parts(path):
            _require(part, _fault(part, above=part != path))
    for name in SUBFOLDERS:
        part = home / name
        if part.is_symlink() or part.exists():
            _require(part, "it is a link" if part.is_symlink() else _fault(part, above=False))
            part.chmod(0o700)


def receive(place: Path, token: str, digest: str, size: int, offset: int, stream: IO[bytes]) -> bool:
    """Append ``stream`` to a partial file of ``size`` bytes; move it to ``place`` if its SHA-256 is ``digest``.

    An incomplete file is kept for the next attempt of the host with this ``token``. Returns whether the file is
    complete and has this hash.
    """
    part, flags = _part(place, token), os.O_RDWR | os.O_NOFOLLOW
    if offset == 0:
        flags |= os.O_CREAT | os.O_EXCL
        with suppress(FileNotFoundError):
            part.unlink()
    cut_off = False
    try:
        with os.fdopen(os.open(str(part), flags, 0o600), "r+b") as file:
            file.seek(offset)
            for chunk in iter(lambda: stream.read1(CHUNK_BYTES), b""):  # type: ignore[attr-defined]
                file.write(chunk)
                file.flush()
            cut_off = file.tell() < size
        if _hash_of(part) != digest:
            return False
        part.replace(place)
        return True
    finally:
        if not cut_off:
            with suppress(FileNotFoundError):
                part.unlink()


def arrived_bytes(place: Path, token: str) -> int:
    """How many bytes of the file for ``place`` have arrived from this host."""
    try:
        return _part(place, token).lstat().st_size
    except FileNotFoundError:
        return 0


def _home(folder: str) -> Path:
    try:
        return Path(os.path.normpath(str(Path(folder).expanduser().absolute())))
    except RuntimeError:
        raise Refused(f"The device does not know the home folder of {folder}.", ELSEWHERE) from None


def _part(place: Path, token: str) -> Path:
    return place.with_name(f".{place.name}.{token}.part")


def _hash_of(path: Path) -> str:
    """SHA-256 of a file; empty if it does not exist or is a link."""
    try:
        descriptor = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return ""
    found = hashlib.sha256()
    with os.fdopen(descriptor, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
            found.update(chunk)
    return found.hexdigest()


def _parts(path: Path) -> "Iterator[Path]":
    """``path`` and the folders above it that exist, up to this user's home or the root, both excluded."""
    top = {Path("/")}
    with suppress(RuntimeError):  # a user without a home
        top |= {Path.home(), Path.home().resolve()}
    for part in (path, *path.parents):
        if part in top:
            return
        if part.is_symlink() or part.exists():
            yield part


def _require(path: Path, fault: str) -> None:
    if fault:
        raise Refused(
            f"{path} on the device is not a safe place for models and programs: {fault}.",
            f"{ELSEWHERE}. If you trust what is in it: chmod go-w {path}",
        )


def _fault(path: Path, *, above: bool) -> str:
    """Why other users could change what is in the agent's folder, or one ``above`` it; empty if they cannot."""
    trusted = {os.geteuid(), 0} if above else {os.geteuid()}
    if path.is_symlink() and path.lstat().st_uid not in trusted:
        return "another user has put a link there"
    found = path.stat()
    if found.st_uid not in trusted:
        return f"it belongs to {_user(found.st_uid)}"
    if found.st_mode & stat.S_ISVTX and above:  # others may add files to it, but not rename existing ones
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "all users can write to it"
    if found.st_mode & stat.S_IWGRP and not _is_alone_in(found.st_gid):
        return "a group can write to it"
    return ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"


def _is_alone_in(gid: int) -> bool:
    """Whether this user is the only member of a group, such as the one that Debian creates for each user."""
    try:
        members = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(gid).gr_mem}
    except KeyError:
        return False
    return members | {one.pw_uid for one in pwd.getpwall() if one.pw_gid == gid} == {os.geteuid()}


def _say(event: "dict[str, Any]") -> None:
    sys.stdout.write(json.dumps(event) + "\n")


def _refuse(problem: str, hint: str) -> None:
    _say({"event": "error", "kind": "DeviceError", "problem": problem, "hint": hint})
    sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
