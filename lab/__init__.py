"""The real test bed: an HTCondor access point, a two-factor Slurm site and a router, from Debian packages.

``lab/lab up`` starts it, ``lab/lab down`` ends it; tests attach to a running one::

    from lab import Lab
    lab = Lab.attach()
    lab.exec("ap", ["condor_status"], user="alice")
"""

from lab.control import Lab
from lab.errors import LabError

__all__ = ["Lab", "LabError"]
