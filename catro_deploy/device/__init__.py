"""What runs on the device: an agent that takes one job and answers in JSON lines.

Started by ``python -m catro_deploy.device``. Only ``local`` runs on the host; the rest needs Python 3.8,
numpy and one runtime, so that it runs on older devices.
"""

from __future__ import annotations

__all__: list[str] = []
