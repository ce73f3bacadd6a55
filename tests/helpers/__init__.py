"""What several tests share: small federations, oracles, files as the official ones are, a way to call the command."""
