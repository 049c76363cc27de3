"""Cloud TPU VMs: creates one, trains on it, re-creates it after a preemption, deletes it.

Works on the `gcloud` command of the Google Cloud CLI and on `git`. Does not import TensorFlow.
"""
