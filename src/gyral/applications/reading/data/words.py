"""Words with a special meaning in reading comprehension."""

BEGIN, END = "@begin", "@end"  # around a question, as in the code of Dhingra et al. (bdhingra/ga-reader)
PLACEHOLDER = "@placeholder"  # the place of the answer in a question

# Determiners, pronouns, prepositions, conjunctions, auxiliary verbs and particles, whose equality says little.
_FUNCTION_WORDS = (
    "a an the this that these those some any no every each all both either neither much many more most few less least "
    "such own other another same several i me my mine myself you your yours yourself he him his himself she her hers "
    "herself it its itself we us our ours ourselves they them their theirs themselves who whom whose which what "
    "someone something anyone anything everyone everything nobody nothing one ones there here of in on at by for with "
    "about against between into through during before after above below to from up down out off over under again "
    "further onto upon toward towards across along around behind beside beyond near within without like as than and "
    "but or nor so yet if because while until although though whether since unless when where why how not n't 's 'm "
    "'re 've 'll 'd am is are was were be been being have has had having do does did doing done will would shall "
    "should can could may might must ca wo let just only even too very also then now ever never always still already "
    "back away -- ' ´ ‖ ~ / _ ** *** ****"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
