"""The tables and figures of the FedMR paper as studies that anybody can run again.

:mod:`fedmr_med.lab.studies.catalog` says which there are; ``paper.yaml`` holds the paper's figures.
"""
