"""End-to-end encryption: our device, its keys, and what is sealed and opened with them. P7"""
