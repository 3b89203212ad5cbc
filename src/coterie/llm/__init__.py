"""Language models: roles, a router over providers, structured answers, the embedded model, spend, record and replay."""
