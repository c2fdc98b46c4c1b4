"""The report's page of the last seconds, on this machine only: what `headway web` serves."""
