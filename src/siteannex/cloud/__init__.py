"""AWS: what a request becomes there, what its instances boot with, what EC2's refusals mean. Pure so far."""
