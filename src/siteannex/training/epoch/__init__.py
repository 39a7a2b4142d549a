"""siteannex-epoch: what wraps the user's training command on the execution point (docs/epoch-runner.md).

Python 3.8 and the standard library only, imports among these modules relative: `training/rendering/shipping.py` packs
them into one file that travels with every job into containers of all ages.
"""

VERSION = "1"
