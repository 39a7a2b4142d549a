"""Big inputs of jobs, put once at a site and read there by every job: content-addressed, verified, remembered."""
