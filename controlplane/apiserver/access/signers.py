"""Who may act for a signer of certificates: approve requests, sign them, or attest its trust bundles.

Source: kubernetes.io "Certificates and Certificate Signing Requests" (authorization).
"""

from controlplane.apiserver.access.authorization import Attributes, Authorizer
from controlplane.apiserver.access.identity import User

GROUP = "certificates.k8s.io"


def may_act(authorizer: Authorizer, user: User, verb: str, signer: str) -> bool:
    """Return whether a user has the right for the signer, or for all signers of its domain."""
    names = (signer, f"{signer.partition('/')[0]}/*")
    return any(authorizer.decide(user, Attributes(verb, GROUP, "signers", name=name)).is_allowed for name in names)
