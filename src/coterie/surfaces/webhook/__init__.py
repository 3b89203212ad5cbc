"""The webhook and the OpenAI-compatible API: programs and other chat clients talk to characters here. D13, P15"""
