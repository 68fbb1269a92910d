"""Diagnosis of protected assistants: is what protects them there, does it work, and what does the evidence say."""
