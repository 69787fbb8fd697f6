#!/usr/bin/env bash
# Measures ResNet-50 on an NVIDIA GPU and leaves JSON in a folder; ends within 9 minutes.
#     benchmarks/gpu.sh FOLDER [--device cpu --quick]
# Needs Python 3.11 with torch and numpy ($PYTHON, or python3) and this checkout; nothing is installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="${here%/*}${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
# The script watches its own clock; should the GPU hang, what is finished stays.
exec timeout --kill-after=5 530 "${PYTHON:-python3}" "$here/gpu.py" "$@"
