"""siteannex: HTCondor execution points at sites you can log in to, from your own access point."""

__version__ = "0.1.0"
