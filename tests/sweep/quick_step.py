"""The process of a step that runs the quick stages of ``tests.quick_stages``."""

import sys

from catro_deploy import pipeline
from catro_deploy.cli.step import main
from tests.quick_stages import TABLE

if __name__ == "__main__":
    pipeline.STAGES = TABLE
    sys.exit(main())
