"""What a user of Carillon installs: `carillon.client` asks a deployment over HTTP and knows nothing of its inside."""
