"""catro-deploy on the user spaces of devices that are not at hand, each behind a real sshd; see CONTRIBUTING.md.

``parts`` installs the user spaces, ``sides`` enters them, and ``flow`` does in them what a user does.
"""
