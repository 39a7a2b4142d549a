#!/bin/bash -l
#SBATCH --job-name=sweep1-00000001
#SBATCH --comment=siteannex:sweep1-00000001
#SBATCH --partition=gpu-shared
#SBATCH --account=abc123
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32768M
#SBATCH --time=1:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --output=slurm-%j.out
#SBATCH --gres=gpu:a100:2
# One pilot of siteannex annex sweep1-00000001: an HTCondor execution point in a batch job.
# It ends by itself when idle, before its walltime, or on scancel; nothing of it stays but a log archive.

SITEANNEX_HOME="$HOME/my annex"
ANNEX_DIR="$SITEANNEX_HOME/annex/sweep1-00000001"
export SITEANNEX_HOME ANNEX_DIR
module load singularitypro
# sbatch brings the login's environment along: HTCondor settings in it would override the EP's own.
# shellcheck disable=SC2013  # names, not lines
for name in $(awk 'BEGIN { for (v in ENVIRON) if (toupper(v) ~ /^_CONDOR_/) print v }'); do unset "$name"; done
if [ ! -r "$ANNEX_DIR/pilot.sh" ]; then
    echo "siteannex: $ANNEX_DIR is gone, so this annex was taken down; nothing to do" >&2
    exit 10
fi
# exec: the pilot is then the very process that Slurm signals before walltime and on scancel --batch.
exec /bin/sh "$ANNEX_DIR/pilot.sh"
