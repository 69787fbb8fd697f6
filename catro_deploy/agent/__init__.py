"""The code that runs on the device: an agent that takes one job and answers in JSON lines.

It is started by ``python -m catro_deploy.agent``, or as one file that is sent to remote devices. It needs only Python
3.8, numpy and one runtime, so that it runs on older devices. ``jobs``, ``events`` and ``results`` define the messages,
``wire`` defines how they are written and read.
"""

from __future__ import annotations

__all__: list[str] = []
