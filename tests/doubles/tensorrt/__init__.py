"""TensorRT's real Python bindings, except for the classes that need its libraries: those are doubles, see played.py."""

from tensorrt import played
from tensorrt_bindings import *  # noqa: F403
from tensorrt_bindings import __version__  # noqa: F401

globals().update({name: getattr(played, name) for name in played.__all__})
