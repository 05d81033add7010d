-- Part of claim: whether a dead letter keeps its lane. Changes nothing of claim.
keys.blocks = on_dead == 'block'
