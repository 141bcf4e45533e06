"""Settings of encryption and logins, a base of `BrokerConfig`: keys, certificates, protocols, SASL, delegation tokens.

Names, types and defaults are Kafka 3.9's. All of them may be given for one listener alone (`listener_settings`).
Source: org.apache.kafka.common.config.{SslConfigs, internals.BrokerSecurityConfigs}.
"""

# ruff: noqa: E501
# The table is wide, so that one setting stays one line.

from __future__ import annotations

from kafkalite.config.listeners import PROTOCOLS
from kafkalite.config.setting_checks import (
    parse_endpoint_identification,
    parse_principal_builder,
    parse_store_type,
)
from kafkalite.config.settings import (
    Settings,
    boolean,
    double,
    integer,
    java_class,
    long,
    password,
    section,
    short,
    string,
    words,
)

CLIENT_AUTH = ("required", "requested", "none")
ENCODER_CIPHERS = ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding")
ENCODER_KEY_FACTORIES = tuple(f"PBKDF2WithHmacSHA{bits}" for bits in ("1", "224", "256", "384", "512"))
ENCODER_ITERATIONS_MAX = 200_000  # 0.1 s
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3", "TLSv1.1", "TLSv1")


class SecuritySettings(Settings):
    """Values of the lines below."""

    # fmt: off
    _tls = section("Encryption (TLS)")
    security_inter_broker_protocol: str = string("PLAINTEXT", "The security protocol between brokers, at the listener of that name; not together with inter.broker.listener.name.", one_of=PROTOCOLS)
    ssl_keystore_type: str = string("JKS", "Format of this broker's key and certificates: PEM, PKCS12 or JKS (which stands for PEM or PKCS12 here, by the file's content).", dynamic=True, convert=parse_store_type)
    ssl_keystore_location: str | None = string(None, "File with this broker's key and certificates.", dynamic=True)
    ssl_keystore_password: str | None = password(None, "Password of that file; PEM has none.", dynamic=True)
    ssl_key_password: str | None = password(None, "Password of the private key; unset, that of the file.", dynamic=True)
    ssl_keystore_key: str | None = password(None, "The private key itself, as PEM (PKCS#8), in place of a file.", dynamic=True)
    ssl_keystore_certificate_chain: str | None = password(None, "The certificates for it, as PEM, the broker's own first.", dynamic=True)
    ssl_truststore_type: str = string("JKS", "Format of the trusted certificates: PEM, PKCS12 or JKS (which stands for PEM or PKCS12 here, by the file's content).", dynamic=True, convert=parse_store_type)
    ssl_truststore_location: str | None = string(None, "File with the authorities whose certificates are trusted; unset, the system's.", dynamic=True)
    ssl_truststore_password: str | None = password(None, "Password of that file, if it needs one.", dynamic=True)
    ssl_truststore_certificates: str | None = password(None, "The trusted certificates themselves, as PEM, in place of a file.", dynamic=True)
    ssl_client_auth: str = string("none", "Whether clients present a certificate: required, requested (if one is presented, it must be valid) or none.", one_of=CLIENT_AUTH, dynamic=True)
    ssl_enabled_protocols: tuple[str, ...] = words(("TLSv1.2", "TLSv1.3"), "Versions of TLS that may be used.", one_of=TLS_VERSIONS, dynamic=True)
    ssl_cipher_suites: tuple[str, ...] = words((), "Cipher suites that may be used, by their IANA names; empty leaves it to OpenSSL.", dynamic=True)
    ssl_endpoint_identification_algorithm: str = string("https", "Empty: the host name in the certificate of another broker is not verified.", dynamic=True, convert=parse_endpoint_identification)
    ssl_principal_mapping_rules: str = string("DEFAULT", "Turn the distinguished name of a certificate into the name of a user: a list of RULE:pattern/replacement/[LU] and DEFAULT, of which the first match counts.")
    ssl_allow_dn_changes: bool = boolean(False, "Whether a new certificate may have another distinguished name than the one before, without a restart.")
    ssl_allow_san_changes: bool = boolean(False, "Whether it may lack host names that the one before has.")
    principal_builder_class: str = java_class("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", "Java's class that derives a connection's principal; only Kafka's default is supported.", dynamic=True, convert=parse_principal_builder)

    _sasl = section("Authentication (SASL)")
    sasl_enabled_mechanisms: tuple[str, ...] = words(("GSSAPI",), "Mechanisms of a SASL listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI (Kerberos).", dynamic=True)
    sasl_mechanism_inter_broker_protocol: str = string("GSSAPI", "The mechanism by which the brokers of a cluster log in to each other, if the inter-broker listener has SASL; their own login is in the login module of that listener and mechanism.", dynamic=True)
    sasl_jaas_config: str | None = password(None, "The login module of one listener and mechanism, such as listener.name.outside.plain.sasl.jaas.config=...PlainLoginModule required user_alice=\"...\";", dynamic=True)
    java_security_auth_login_config: str | None = string(None, "JAAS file with the login modules of listeners without sasl.jaas.config, and of ZooKeeper's client. Kafka has it as a property of Java: KAFKA_OPTS=-Djava.security.auth.login.config=FILE, which is understood, too.")
    sasl_server_max_receive_size: int = integer(524_288, "Largest token or request of a connection that is not authenticated yet.", at_least=1)
    sasl_server_callback_handler_class: str | None = java_class(None, "How tokens of OAUTHBEARER are validated: ...OAuthBearerValidatorCallbackHandler by the keys of an authority, ...OAuthBearerUnsecuredValidatorCallbackHandler without a signature, for trials.")
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(None, "The keys of the authority that signs tokens (JWKS): https://... or file:///...")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(3_600_000, "Time after which the keys are read again.", at_least=0)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(100, "Pause before the keys are read again after an error; doubled each time.", at_least=0)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(10_000, "Time after the first error for which it is tried again.", at_least=0)
    sasl_oauthbearer_expected_audience: tuple[str, ...] = words((), "Audiences, one of which a token must name; empty: any.", unset=True)
    sasl_oauthbearer_expected_issuer: str | None = string(None, "The authority that a token must name; unset: any.")
    sasl_oauthbearer_clock_skew_seconds: int = integer(30, "Clock difference to the authority that is tolerated.", at_least=0)
    sasl_oauthbearer_sub_claim_name: str = string("sub", "The claim with the name of the user.")
    sasl_oauthbearer_scope_claim_name: str = string("scope", "The claim with the scopes.")
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = words(("DEFAULT",), "Turn principals of Kerberos (GSSAPI) into names of users: a list of RULE:[n:FORMAT](PATTERN)s/FROM/TO/ and DEFAULT, of which the first that applies counts.", dynamic=True)
    sasl_login_callback_handler_class: str | None = java_class(None, "How this broker gets its own token of OAUTHBEARER, if brokers log in to each other by that: ...OAuthBearerLoginCallbackHandler from an authority, ...OAuthBearerUnsecuredLoginCallbackHandler an unsigned one, for trials.")
    sasl_oauthbearer_token_endpoint_url: str | None = string(None, "The authority's endpoint that issues tokens to clientId and clientSecret of the login module: https://..., or file:///... with a token.")
    sasl_oauthbearer_header_urlencode: bool = boolean(False, "Whether clientId and clientSecret are sent to it in the encoding of URLs, as RFC 6749 has it; Kafka sends them as they are.", dynamic_only=True)
    sasl_login_connect_timeout_ms: int | None = integer(None, "Longest time to connect to the authority; unset or 0, 10000.", at_least=0)
    sasl_login_read_timeout_ms: int | None = integer(None, "Longest time to wait for its response; unset or 0, 10000.", at_least=0)
    sasl_login_retry_backoff_ms: int = long(100, "Pause before the next request to the authority after an error; doubled each time.", at_least=0)
    sasl_login_retry_backoff_max_ms: int = long(10_000, "Time after the first error for which it is tried again.", at_least=0)
    sasl_login_refresh_window_factor: float = double(0.8, "Part of its life after which a token is replaced.", at_least=0.5, at_most=1, dynamic=True)
    sasl_login_refresh_window_jitter: float = double(0.05, "Largest random part that is added to it.", at_least=0, at_most=0.25, dynamic=True)
    sasl_login_refresh_min_period_seconds: int = short(60, "Shortest time for which a token is kept, if it lives for longer than this and the buffer together.", at_least=0, at_most=900, dynamic=True)
    sasl_login_refresh_buffer_seconds: int = short(300, "The buffer before its end at which a token is replaced at the latest.", at_least=0, at_most=3600, dynamic=True)
    sasl_kerberos_service_name: str | None = string(None, "First part of the principals of brokers, if they log in to each other by GSSAPI, such as kafka.", dynamic=True)
    sasl_kerberos_kinit_cmd: str = string("/usr/bin/kinit", "Renews the tickets of a login module with useTicketCache=true.", dynamic=True)
    sasl_kerberos_ticket_renew_window_factor: float = double(0.8, "Part of its life after which a ticket is renewed.", dynamic=True)
    sasl_kerberos_min_time_before_relogin: int = long(60_000, "Shortest time between two renewals.", dynamic=True)
    connections_max_reauth_ms: int = long(0, "Time after which clients must authenticate again, or are disconnected; 0 is never.")
    connection_failed_authentication_delay_ms: int = integer(100, "Delay of the response to a failed authentication.", at_least=0)

    _tokens = section("Delegation tokens")
    delegation_token_secret_key: str | None = password(None, "Enables delegation tokens, with which clients log in (SCRAM) as their owner, and signs them. The same on all brokers of a cluster.")
    delegation_token_master_key: str | None = password(None, "The name of delegation.token.secret.key in earlier versions of Kafka.")
    delegation_token_max_lifetime_ms: int = long(604_800_000, "Longest life of a token, with all its renewals.", at_least=1)
    delegation_token_expiry_time_ms: int = long(86_400_000, "Time after which a token expires unless it is renewed.", at_least=1)
    delegation_token_expiry_check_interval_ms: int = long(3_600_000, "How often to remove expired tokens.", at_least=1)

    _encoder = section("Secrets that are changed while running")
    password_encoder_secret: str | None = password(None, "The secret that encrypts passwords which are set while this broker runs and kept in ZooKeeper.")
    password_encoder_old_secret: str | None = password(None, "The previous secret: a start encrypts with the new one what was encrypted with this one.")
    password_encoder_cipher_algorithm: str = string(ENCODER_CIPHERS[0], "The cipher of these passwords.", one_of=ENCODER_CIPHERS)
    password_encoder_key_length: int = integer(128, "Bits of the cipher's key: 128, 192 or 256.", at_least=8)
    password_encoder_keyfactory_algorithm: str | None = string(None, "The algorithm that derives the key from the secret; unset, PBKDF2WithHmacSHA512.", one_of=ENCODER_KEY_FACTORIES)
    password_encoder_iterations: int = integer(4096, "Iterations of that algorithm.", at_least=1024, at_most=ENCODER_ITERATIONS_MAX)
    # fmt: on

    @property
    def token_secret(self) -> str:
        """The secret of delegation tokens; empty if there are none."""
        return self.delegation_token_secret_key or self.delegation_token_master_key or ""
