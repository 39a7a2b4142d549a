"""Sites as data: what an admin wrote about a cluster, loaded and checked."""
