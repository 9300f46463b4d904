"""Certificates of admission webhooks, which the webhook issues itself and keeps in a secret: when to renew
them, and the writes to secret and webhook configuration. It must not serve HTTP. Drivers import it.
"""
