"""``python -m catro_deploy``: the command line."""

from catro_deploy.cli.main import main

main()
