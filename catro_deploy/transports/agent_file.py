"""The agent as one file for a Python interpreter, to be sent to devices."""

import base64
import io
import zipfile
import zlib
from functools import cache
from pathlib import Path

__all__ = ["agent_file", "bootstrap"]

PACKAGE = Path(__file__).parents[1]
# Everything that runs on a device, and nothing that needs more than Python 3.8, numpy and a runtime.
PARTS = ("__init__.py", "errors.py", "agent/*.py", "runtimes/*.py")
# NVIDIA's own library to build and run engines: pure Python, so it can be sent along.
WITH_POLYGRAPHY = ("tensorrt",)
LEFT_OUT = ("tools",)
MAIN = "import sys\n\nfrom catro_deploy.agent.__main__ import main\n\nsys.exit(main())\n"
# Equal sources give equal files, independent of time stamps.
EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def agent_file(runtime: str = "") -> bytes:
    """The content of a zip application, with what it needs to run networks in ``runtime``."""
    sources = {"__main__.py": MAIN}
    for pattern in PARTS:
        for path in sorted(PACKAGE.glob(pattern)):
            sources[f"{PACKAGE.name}/{path.relative_to(PACKAGE).as_posix()}"] = path.read_text(encoding="utf-8")
    if runtime in WITH_POLYGRAPHY:
        import polygraphy

        own = Path(polygraphy.__file__).parent
        for path in sorted(own.rglob("*.py")):
            inside = path.relative_to(own.parent)
            if inside.parts[1] not in LEFT_OUT:
                sources[inside.as_posix()] = path.read_text(encoding="utf-8")
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sources.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), text, zipfile.ZIP_DEFLATED)
    return made.getvalue()


@cache
def bootstrap() -> str:
    """The argument of ``python -c`` that stores and starts the agent: ``agent/bootstrap.py`` packed into one line.

    It imports nothing from the folder in which ssh starts.
    """
    packed = base64.b64encode(zlib.compress((PACKAGE / "agent" / "bootstrap.py").read_bytes(), 9)).decode()
    unpack = f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{packed}')))"
    return f"import sys;sys.path[:]=[one for one in sys.path if one];{unpack}"
