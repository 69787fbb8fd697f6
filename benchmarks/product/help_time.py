"""How long ``catro-deploy --help`` takes: wall time of whole processes, one after another. Target: under 0.5 s.

    python -m benchmarks.product.help_time

Prints a table; writes benchmarks/results/help_time.json.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

from benchmarks.common import write_result

RESULT = "help_time.json"
REPEATS = 20
TARGET_S = 0.5


def seconds(*arguments: str) -> list[float]:
    """Wall times of ``REPEATS`` processes, after one that warms the file cache."""
    command = [sys.executable, "-m", "catro_deploy.cli.main", *arguments]
    times = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return times[1:]


def main() -> None:
    """Measure, print a table, write the JSON."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    commands = {}
    load = os.getloadavg()[0]
    print(f"{'command':<24}{'median s':>10}{'largest s':>11}   target {TARGET_S} s")
    for arguments in (("--help",), ("run", "--help"), ("targets", "--help")):
        times = seconds(*arguments)
        commands[" ".join(arguments)] = {"median_s": statistics.median(times), "samples_s": times}
        print(f"{' '.join(arguments):<24}{statistics.median(times):>10.3f}{max(times):>11.3f}")
    environment = {"python": platform.python_version(), "cores": os.cpu_count(), "load_average_before": load}
    write_result(RESULT, {"commands": commands, "environment": environment})


if __name__ == "__main__":
    main()
