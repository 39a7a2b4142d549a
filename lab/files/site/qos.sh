#!/bin/sh
# Limits that real sites have: GPUs a user may hold at once, and a QOS for short jobs.
sacctmgr -i modify qos normal set MaxTRESPerUser=gres/gpu=6
