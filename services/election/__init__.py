"""Who should lead: elections of masters, and what they leave behind for those who look for a leader (document 000).

The log says who does lead (services/core/leadership.py); what is here only gives the right to claim it.
"""
