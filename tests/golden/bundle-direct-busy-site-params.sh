# What the plan says to the pilot. Rendered by siteannex; read by pilot.sh.
P_ANNEX_ID=sweep1-00000001
P_NAME=sweep1
P_SITE=lab
P_PILOTS=1
P_EP_SHA256=abababababababababababababababababababababababababababababababab
P_EP_VERSION=25.14.1
P_COLLECTOR='ap.lab:9618?sock=ap_collector'
P_COLLECTOR_HOST=ap.lab
P_COLLECTOR_PORT=9618
P_SCHEDD=ap.lab
P_TRUST_DOMAIN=ap.lab
P_IDENTITY=alice@ap.lab
P_JOIN=direct
P_CPUS=8
P_MEMORY_MIB=32768
P_GPUS=2
P_GPU_MODEL='NVIDIA A100-SXM4-40GB'
P_GPU_MEMORY_MIB=40536
P_SHARING=shared
P_WALLTIME_S=3600
P_IDLE_S=600
P_START_UNTIL_S=180
P_NOTICE_S=120
P_EVICT_S=75
P_VACATE_S=41
P_FAST_S=30
P_SCRATCH=$(printf '%s\n' "/scratch/$USER/job_$SLURM_JOB_ID" "/tmp")
