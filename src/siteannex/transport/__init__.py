"""How commands and files reach a site: paramiko SSH, the session holder, this machine."""
