"""Parts of the packer: reading ELF, finding libraries, archives that never vary, versions that fit."""

from siteannex.annex.packing.versions import check_versions, version_tuple

__all__ = ["check_versions", "version_tuple"]
