"""How the operator grows with its fleet: on a real API server, with pods whose status is written here."""
