#!/bin/sh
# The node: scratch, EP software, programs that run, what Slurm granted, containers, GPUs.
# A part of pilot.sh, which reads it before anything else; it only defines functions.
# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts; P_* come from params.sh

# --- scratch and software ------------------------------------------------------------------------------------------

ROOM_MIB=100 # beside the EP's programs: logs, and a job's first files
ROOM_FILES=500

# The software as it lies at the site, before any space is asked for it. A damaged file is taken away, so that the
# next `up` ships a whole one.
check_software() {
    archive="$SITEANNEX_HOME/ep/$P_EP_SHA256.tar.gz"
    [ -r "$archive" ] || fail ep-software-damaged "$archive is not there"
    if command -v sha256sum >/dev/null 2>&1; then
        # Bounded: a shared file system that hangs must not hold the allocation until its walltime.
        sum=$(timeout 300 sha256sum <"$archive" | cut -c 1-64)
        [ -n "$sum" ] || fail ep-unpack-failed "$archive could not be read in 5 minutes"
        if [ "$sum" != "$P_EP_SHA256" ]; then
            rm -f "$archive"
            fail ep-software-damaged "$archive is damaged and was removed: its sha256 is $sum"
        fi
    fi
    NEED_MIB=$(gzip -l <"$archive" 2>/dev/null | awk 'NR == 2 { print int($2 / 1048576) }')
    NEED_MIB=$((${NEED_MIB:-100} + ROOM_MIB))
}

# Unpack into the first scratch directory that can hold the EP and run programs. What df says is believed only until a
# file system refuses to be written: quotas do not show in df.
settle() {
    tried="" full=0
    while IFS= read -r place; do
        [ -n "$place" ] || continue
        why=$(usable "$place" 2>&1)
        if [ -z "$why" ]; then
            if DIR=$(mktemp -d "$place/siteannex.$JOB.XXXXXX" 2>&1); then
                unpack && return 0
                why=$(seen "$DIR/err" 2)
                why=${why:-No space left on device}
                rm -rf "$DIR"
            else
                why=$DIR
            fi
            DIR=""
        fi
        case $why in
        *" needed" | *"No space left"* | *[Qq]"uota exceeded"*) full=1 ;;
        esac
        tried="$tried${tried:+; }$place: $why"
    done <<PLACES
$P_SCRATCH
PLACES
    if [ "$full" = 1 ]; then
        fail scratch-full "no scratch directory can hold the EP ($(spell_mib "$NEED_MIB") needed): $tried" "$(quota_words)"
    fi
    fail scratch-unusable "${tried:-no candidate is set on this node}"
}

# Prints why a directory cannot hold the EP; prints nothing when it can.
usable() {
    if [ ! -d "$1" ]; then echo "no such directory"; return; fi
    probe="$1/siteannex.$JOB.probe.$$"
    mib=$(free_mib "$1")
    if ! (printf '#!/bin/sh\nexit 0\n' >"$probe") 2>/dev/null && [ "${mib:-$NEED_MIB}" -ge "$NEED_MIB" ]; then
        echo "not writable"
        return
    fi
    chmod 700 "$probe" 2>/dev/null
    [ ! -s "$probe" ] || "$probe" >/dev/null 2>&1 || echo "programs cannot run there (noexec)"
    rm -f "$probe"
    if [ "${mib:-$NEED_MIB}" -lt "$NEED_MIB" ]; then
        echo "$(spell_mib "$mib") free, $(spell_mib "$NEED_MIB") needed"
        return
    fi
    files=$(free_files "$1")
    if [ "${files:-$ROOM_FILES}" -lt "$ROOM_FILES" ]; then echo "$files inodes free, $ROOM_FILES needed"; fi
}

# Nothing where the file system does not count its blocks, or its inodes.
free_mib() { timeout 30 df -Pk "$1" 2>/dev/null | awk 'NR == 2 && $2 > 0 { print int($4 / 1024) }'; }

free_files() { timeout 30 df -Pi "$1" 2>/dev/null | awk 'NR == 2 && $2 > 0 { print $4 }'; }

# Your quotas, where this node has a tool that shows them.
quota_words() {
    ! command -v quota >/dev/null 2>&1 || timeout 10 quota 2>/dev/null | sed 's/^/quota: /'
}

# True when unpacked; false when there is no room, for the next candidate; anything else ends the pilot.
unpack() {
    FREE_MIB=$(free_mib "$DIR")
    FREE_MIB=${FREE_MIB:-0}
    EP="$DIR/ep"
    if mkdir "$EP" 2>"$DIR/err" && timeout 300 tar -xzf "$archive" -C "$EP" 2>"$DIR/err"; then
        # What some sites preload into every program is built for their glibc, not for the one packed with the EP.
        unset LD_PRELOAD LD_AUDIT
        return 0
    fi
    if grep -q -i -e 'No space left' -e 'quota exceeded' "$DIR/err" 2>/dev/null || ! echo . >"$DIR/more" 2>/dev/null; then
        return 1
    fi
    fail ep-unpack-failed "tar could not unpack $archive in $DIR (it has 5 minutes)" "tar: $(seen "$DIR/err" 3)"
}

# --- programs ------------------------------------------------------------------------------------------------------

check_programs() {
    for program in bin/condor_config_val bin/condor_ping bin/condor_status sbin/condor_advertise sbin/condor_master \
        sbin/condor_startd; do
        said=$(CONDOR_CONFIG=ONLY_ENV timeout 30 "$EP/$program" -version 2>&1) || broken "${program#*/}" "$said"
    done
}

# broken PROGRAM WORDS: why a program of the EP does not run here, told by what the loader said.
broken() {
    case $2 in
    *GLIBC*"not found"* | *"kernel too old"*)
        needs=$(printf '%s\n' "$2" | grep -o 'GLIBC[A-Z]*_[0-9.]*' | sort -u | tr '\n' ' ')
        case $2 in
        *"$EP/lib/libc.so.6:"* | *"$EP/bin/../lib/libc.so.6:"* | *"$EP/sbin/../lib/libc.so.6:"*)
            has="the one packed with the EP is older" ;;
        *) has="this node has $(getconf GNU_LIBC_VERSION 2>/dev/null || echo 'no glibc')" ;;
        esac
        fail ep-loader-too-old "$1 needs ${needs:-a newer kernel }and $has (Linux $(uname -r))" "$1: $2"
        ;;
    *"loading shared libraries"* | *"cannot open shared object"*) fail ep-library-missing "$1 does not start" "$1: $2" ;;
    *"xec format error"* | *"cannot execute binary"*)
        fail ep-binary-broken "$1 is not for this node's processor ($(uname -m))" "$1: $2" ;;
    esac
    fail ep-binary-broken "$1 does not run" "$1: ${2:-no answer in 30 s}"
}

# --- what Slurm granted --------------------------------------------------------------------------------------------

is_number() {
    case $1 in
    "" | *[!0-9]*) return 1 ;;
    esac
}

# What Slurm granted this job on this node; never more.
read_grants() {
    CPUS=${SLURM_CPUS_ON_NODE:-$P_CPUS}
    is_number "$CPUS" || CPUS=$P_CPUS
    GPUS=0 GPU_DRIVER=""
    if [ "$P_GPUS" -gt 0 ]; then
        read_gpus
        GPU_DRIVER=$(driver_version)
    fi
    MEMORY_MIB=0
    if is_number "${SLURM_MEM_PER_NODE:-}"; then
        MEMORY_MIB=$SLURM_MEM_PER_NODE
    elif is_number "${SLURM_MEM_PER_CPU:-}"; then
        MEMORY_MIB=$((SLURM_MEM_PER_CPU * CPUS))
    elif is_number "${SLURM_MEM_PER_GPU:-}" && [ "$GPUS" -gt 0 ]; then
        MEMORY_MIB=$((SLURM_MEM_PER_GPU * GPUS))
    fi
    [ "$MEMORY_MIB" -gt 0 ] || MEMORY_MIB=$P_MEMORY_MIB
}

read_gpus() {
    visible=${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-${SLURM_JOB_GPUS:-}}}
    [ "$visible" = NoDevFiles ] && visible=""
    GRANTED_BY="CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-}, SLURM_JOB_GPUS=${SLURM_JOB_GPUS:-}"
    if [ -z "$visible" ] && is_number "${SLURM_GPUS_ON_NODE:-}"; then
        visible=$(first_devices "$SLURM_GPUS_ON_NODE")
    elif [ -z "$visible" ] && [ "$P_SHARING" = exclusive ]; then
        # The node is ours and Slurm does not count its GPUs: as many as the plan says, checked when they are looked for.
        visible=$(first_devices "$P_GPUS")
    fi
    GPUS=$(printf '%s' "$visible" | awk -F, '{ print NF } END { if (NR == 0) print 0 }')
    CUDA_VISIBLE_DEVICES=$visible
    export CUDA_VISIBLE_DEVICES
}

first_devices() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%s%d", (i ? "," : ""), i }'; }

# Less than the plan asked is not what the jobs waiting for this annex were promised.
check_grants() {
    if [ "$GPUS" -lt "$P_GPUS" ]; then
        code=gpus-missing
        [ "$GPUS" -gt 0 ] || code=gpus-none
        fail "$code" "Slurm granted $GPUS of the $P_GPUS GPUs asked for" "Slurm's variables: $GRANTED_BY"
    fi
    if [ "$CPUS" -lt "$P_CPUS" ]; then
        fail cpus-missing "Slurm granted $CPUS of the $P_CPUS CPUs asked for" \
            "Slurm's variables: SLURM_CPUS_ON_NODE=${SLURM_CPUS_ON_NODE:-}"
    fi
    if [ "$MEMORY_MIB" -lt $((P_MEMORY_MIB * 9 / 10)) ]; then
        fail memory-missing "Slurm granted $(spell_mib "$MEMORY_MIB") of the $(spell_mib "$P_MEMORY_MIB") asked for" \
            "Slurm's variables: SLURM_MEM_PER_NODE=${SLURM_MEM_PER_NODE:-}, SLURM_MEM_PER_CPU=${SLURM_MEM_PER_CPU:-}"
    fi
}

# --- containers ----------------------------------------------------------------------------------------------------

# Found, and tried with HTCondor's own test image. No failure: many jobs need no container. The startd tests again and
# advertises HasSingularity, SingularityVersion and HasUserNamespaces; these words say why when it does not.
probe_containers() {
    CONTAINER_PROGRAM=$(command -v apptainer || command -v singularity) || CONTAINER_PROGRAM=""
    CONTAINERS="no apptainer here"
    [ -n "$CONTAINER_PROGRAM" ] || return 0
    CONTAINERS=$(timeout 30 "$CONTAINER_PROGRAM" --version 2>/dev/null | head -n 1 | tr -cd 'A-Za-z0-9 ._+-')
    CONTAINERS=${CONTAINERS:-${CONTAINER_PROGRAM##*/}}
    [ -d "$EP/libexec/singularity_test_sandbox" ] || return 0
    said=$(timeout 60 "$CONTAINER_PROGRAM" exec --contain "$EP/libexec/singularity_test_sandbox" /exit_37 2>&1)
    if [ $? -eq 37 ]; then
        CONTAINERS="$CONTAINERS works"
    else
        said=$(printf '%s\n' "${said:-no answer}" | tail -n 1 | cut -c 1-200 | tr -d '\042\134')
        CONTAINERS="$CONTAINERS does not work ($(namespaces)): $said"
    fi
}

namespaces() {
    if unshare --user true 2>/dev/null; then echo "user namespaces are on"; else echo "user namespaces are off"; fi
}

# --- GPUs ----------------------------------------------------------------------------------------------------------

# What HTCondor's own discovery finds among the GPUs that Slurm granted, against what the plan asked for: before any
# EP is advertised that is not what it should be.
probe_gpus() {
    GPU_WORDS=""
    [ "$P_GPUS" -gt 0 ] || return 0
    extra=$(timeout 30 "$EP/bin/condor_config_val" GPU_DISCOVERY_EXTRA 2>/dev/null) || extra=""
    # shellcheck disable=SC2086  # a line of words
    found=$(timeout 120 "$EP/libexec/condor_gpu_discovery" -properties -extra $extra 2>&1)
    count=$(printf '%s\n' "$found" | sed -n 's/^DetectedGPUs="\(.*\)".*/\1/p' | awk -F, '{ print NF }')
    count=${count:-0}
    models=$(gpu_property DeviceName | sort -u)
    strangers=$(printf '%s\n' "$models" | of_another_family "$P_GPU_MODEL")
    models=$(printf '%s\n' "$models" | awk '{ printf "%s%s", (NR > 1 ? " + " : ""), $0 }')
    memory=$(gpu_property GlobalMemoryMb | sort -n | head -n 1)
    if [ "$count" -eq 0 ]; then
        fail gpus-none "Slurm granted $GPUS GPUs and this node shows none (driver ${GPU_DRIVER:-not loaded})" "$(gpu_evidence)"
    elif [ "$count" -lt "$GPUS" ]; then
        fail gpus-missing "Slurm granted $GPUS GPUs (CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES), HTCondor found $count" \
            "$(gpu_evidence)"
    elif [ -n "$P_GPU_MODEL" ] && [ -n "$models" ] && [ -n "$strangers" ]; then
        fail gpu-model-differs "this node's GPUs are $models; the plan is for $P_GPU_MODEL" "$(gpu_evidence)"
    elif [ "$P_GPU_MEMORY_MIB" -gt 0 ] && is_number "$memory" && [ "$memory" -lt $((P_GPU_MEMORY_MIB * 9 / 10)) ]; then
        fail gpu-memory-small \
            "a GPU here ($models) has $(spell_mib "$memory"); the plan is for $(spell_mib "$P_GPU_MEMORY_MIB")" "$(gpu_evidence)"
    fi
    GPU_WORDS=", $count x ${models:-GPU}"
    is_number "$memory" && GPU_WORDS="$GPU_WORDS with $(spell_mib "$memory") each"
    [ -z "$GPU_DRIVER" ] || GPU_WORDS="$GPU_WORDS, driver $GPU_DRIVER"
}

gpu_property() {
    printf '%s\n' "$found" | grep -o "$1=[^;]*" | sed -e 's/^[^=]*=//' -e 's/^"//' -e 's/"$//' -e 's/\..*//'
}

driver_version() {
    sed -n 's/^NVRM version:.* \([0-9][0-9]*\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null | head -n 1
}

gpu_evidence() {
    printf '%s\n' "$found" | head -n 6 | cut -c 1-300 | sed 's/^/condor_gpu_discovery: /'
    if command -v nvidia-smi >/dev/null 2>&1; then
        timeout 60 nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader 2>&1 | head -n 8 |
            sed 's/^/nvidia-smi: /'
    else
        echo "nvidia-smi: not on this node"
    fi
}

# Of the models on standard input those that are not MODEL: the model's own word (A100, V100, L40S) is compared, not how
# a driver or a site's file spells the rest.
of_another_family() {
    wanted=$(family "$1")
    while IFS= read -r model; do
        [ "$(family "$model")" = "$wanted" ] || printf '%s\n' "$model"
    done
}

family() {
    printf '%s\n' "$1" | tr 'a-z-' 'A-Z ' | awk '
        { for (i = 1; i <= NF; i++) if ($i ~ /[0-9]/) { print $i; exit } sub(/^NVIDIA +/, ""); print }'
}
