"""What an execution point needs of an HTCondor, and nothing else. Change anything here and every pack is made anew."""

from __future__ import annotations

import hashlib
import re

REQUIRED = {
    "sbin": ("condor_master", "condor_startd", "condor_starter", "condor_procd", "condor_advertise"),
    "bin": ("condor_config_val", "condor_ping", "condor_status"),
    "libexec": ("condor_shared_port", "condor_gpu_discovery"),
}
"""Programs without which there is no EP, by the directory HTCondor's defaults look for them in."""

OPTIONAL = {
    "sbin": ("condor_on", "condor_off"),
    "bin": ("condor_who", "condor_drain", "condor_nsenter", "condor_q"),
    "libexec": (
        "condor_chirp",
        "condor_gpu_utilization",
        "condor_pid_ns_init",
        "curl_plugin",
        "data_plugin",
        "check-url",
        "condor_limits_wrapper.sh",
        "condor_container_launcher.sh",
    ),
}
"""Left out, and named in the manifest, when the source lacks them or their libraries."""

SANDBOX_TEST = "libexec/singularity_test_sandbox"
"""A directory with which a startd finds out whether containers work on the node."""

DLOPENED_REQUIRED = re.compile(r"lib(?:ssl|crypto)\.so\.[\d.]+")
"""Libraries HTCondor loads by name at run time and cannot do without (IDTOKENS needs OpenSSL)."""

DLOPENED_OPTIONAL = re.compile(r"lib(?:munge|SciTokens|krb5|gssapi_krb5|sqlite3|com_err)\.so\.[\d.]+")
"""Loaded by name at run time, used when there."""

GLIBC_FAMILY = (
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libresolv.so.2",
    "libutil.so.1",
    "libnss_files.so.2",
    "libnss_dns.so.2",
)
"""Parts of glibc that must all come from one place: the site's GPU driver libraries ask for several of them by name."""

DRIVER_LIBRARIES = re.compile(r"lib(?:cuda|nvidia|OpenCL|amdhip|hip|rocm)")
"""Never packed: they belong to the node's kernel driver."""

VERSION_TEXT = re.compile(rb"\$CondorVersion: (\d+\.\d+\.\d+) [^$\0]*\$")

_WRAPPER = """\
#!/bin/sh
# Runs the program through the loader and libraries it was packed with, wherever this directory stands.
d=${{0%/*}}/..
exec "$d/lib/{loader}" --library-path "$d/lib"{argv0} "$d/real/{program}" "$@"
"""


def wrapper(program: str, loader: str, glibc: tuple[int, int]) -> str:
    """The script that stands where HTCondor looks for `program`. `--argv0` came with glibc 2.33."""
    return _WRAPPER.format(program=program, loader=loader, argv0=' --argv0 "$0"' if glibc >= (2, 33) else "")


def recipe_hash() -> str:
    """Changes whenever what is packed, or how, changes."""
    parts = repr(
        (
            REQUIRED,
            OPTIONAL,
            SANDBOX_TEST,
            DLOPENED_REQUIRED.pattern,
            DLOPENED_OPTIONAL.pattern,
            GLIBC_FAMILY,
            _WRAPPER,
            FORMAT,
        )
    )
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


FORMAT = 2
"""Raise it when the archive's layout changes in a way the lists above do not show."""
