"""Who makes a request, what they may do, and the certificates and tokens that say so."""
