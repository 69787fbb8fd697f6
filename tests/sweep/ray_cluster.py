"""A Ray cluster of two nodes on this machine: prints its address; kills and adds the second node on request.

Runs in a separate process. Its arguments are the options of the first and the second node, as JSON.
"""

import json
import os
import sys

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}

from ray.cluster_utils import Cluster


def main() -> None:
    first, second = (json.loads(argument) for argument in sys.argv[1:3])
    head = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args=head | first)
    node = cluster.add_node(object_store_memory=80 * 2**20, **second)
    cluster.wait_for_nodes()
    _say(cluster.address)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(node, allow_graceful=False)
            _say("killed")
        if line.strip() == "add":
            node = cluster.add_node(object_store_memory=80 * 2**20, **second)
            _say("added")
    cluster.shutdown()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
