"""End-to-end encryption: the keys of our device, and encrypting and decrypting events and files."""
