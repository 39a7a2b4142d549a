#!/bin/bash
# A compute node of the second site: as the first's, with its own configuration.
LAB_CONF=/lab/files/site2
# shellcheck source=SCRIPTDIR/../site/node-boot.sh
. /lab/files/site/node-boot.sh
