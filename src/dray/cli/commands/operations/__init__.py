"""Commands for operators: status, fence, unfence, the doctor commands and the list of feature gates. They
must not start services. Only the command table imports it.
"""
