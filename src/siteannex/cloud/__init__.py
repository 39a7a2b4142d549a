"""AWS: what a request becomes there, what its instances boot with, what EC2 says; the one importer of boto3."""
