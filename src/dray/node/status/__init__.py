"""The Node object of an agent: registration, lease heartbeat, status and the Ready condition. Nothing here
knows pods or claims; what makes a node unready comes in as checks. The agent and the composition root
import it.
"""
