"""Dynamic Resource Allocation, node side: ResourceSlices out, claims prepared, health told.

assignment -> offers -> ResourceSlices -> API server        claims -> leases -> CDI -> kubelet
"""
