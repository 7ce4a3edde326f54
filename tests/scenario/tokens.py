"""Tokens and keys for the tests: signed by Debian's python3-cryptography, put together here."""

import base64
import hashlib
import hmac
import json
import time

import pytest

hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils  # noqa: E402

HASHES = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
CURVES = {"256": (ec.SECP256R1, "P-256", 32), "384": (ec.SECP384R1, "P-384", 48),
          "512": (ec.SECP521R1, "P-521", 66)}
RSA = rsa.generate_private_key(65537, 2048)  # they take their time: one for all


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, size=None):
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


class Key:
    """One that signs with `alg`. `kid` None: tokens and JWK name none."""

    def __init__(self, alg, kid=None, secret=b"s" * 64):
        self.alg, self.kid, self.secret = alg, kid, secret
        if alg[:2] in ("RS", "PS"):
            self.private = RSA
        elif alg[:2] == "ES":
            self.private = ec.generate_private_key(CURVES[alg[2:]][0]())
        elif alg == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()

    @property
    def pem(self):
        return self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    @property
    def jwk(self):
        jwk = {"use": "sig"}
        if self.kid:
            jwk["kid"] = self.kid
        if self.alg[:2] == "HS":
            return dict(jwk, kty="oct", k=b64(self.secret))
        public = self.private.public_key()
        if self.alg == "EdDSA":
            raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
            return dict(jwk, kty="OKP", crv="Ed25519", x=b64(raw))
        numbers = public.public_numbers()
        if self.alg[:2] == "ES":
            _, name, size = CURVES[self.alg[2:]]
            return dict(jwk, kty="EC", crv=name, x=number(numbers.x, size),
                        y=number(numbers.y, size))
        return dict(jwk, kty="RSA", n=number(numbers.n), e=number(numbers.e))

    def signature(self, data):
        if self.alg == "EdDSA":
            return self.private.sign(data)
        digest = HASHES[self.alg[2:]]()
        if self.alg[:2] == "HS":
            return hmac.new(self.secret, data, getattr(hashlib, "sha" + self.alg[2:])).digest()
        if self.alg[:2] == "RS":
            return self.private.sign(data, padding.PKCS1v15(), digest)
        if self.alg[:2] == "PS":
            return self.private.sign(
                data, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
        size = CURVES[self.alg[2:]][2]
        r, s = utils.decode_dss_signature(self.private.sign(data, ec.ECDSA(digest)))
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")

    def token(self, header=None, **claims):
        """Good for ten minutes, unless the claims say something else; None leaves one out."""
        payload = {"sub": "ann", "exp": int(time.time()) + 600, **claims}
        payload = {name: value for name, value in payload.items() if value is not None}
        head = {"alg": self.alg, "typ": "JWT", **({"kid": self.kid} if self.kid else {}),
                **(header or {})}
        text = b64(json.dumps(head).encode()) + "." + b64(json.dumps(payload).encode())
        return text + "." + b64(self.signature(text.encode()))


def jwks(*keys):
    return json.dumps({"keys": [key.jwk for key in keys]}).encode()


def bearer(token):
    return [("Authorization", f"Bearer {token}")]
