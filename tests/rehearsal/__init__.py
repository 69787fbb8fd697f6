"""The product on user spaces of devices that are not here, each behind a real sshd; see CONTRIBUTING.md.

``parts`` installs them, ``sides`` enters them, ``flow`` does there what a user does.
"""
