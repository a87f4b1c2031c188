"""The words of the phrasebook and their forms: English, and Galician in the norm of the RAG and ILG.

In the tables "|" separates entries, "_" joins the words of one form and "-" stands for a form that does not exist.
Irregular forms are written out; an English noun without gender ("friend", "doctor") is masculine in Galician.
"""

import re
from functools import cache
from typing import NamedTuple


class Bilingual(NamedTuple):
    """An English text, a whole sentence or a part of one, and its Galician translation."""

    english: str
    galician: str


class Noun(NamedTuple):
    """A noun, (singular, plural) in each language, and its semantic class."""

    english: tuple[str, str]
    galician: tuple[str, str]
    feminine: bool
    kind: str

    @property
    def countable(self) -> bool:
        """Whether it has a plural."""
        return self.english[1] != "-"


class Adjective(NamedTuple):
    """A word that agrees, its forms (o, a, os, as) and its copula; a thing has one adjective of a scale at a time."""

    english: str
    forms: tuple[str, ...]
    copula: str = "ser"
    gradable: bool = False
    scale: int = 0


class Verb(NamedTuple):
    """A verb; `tail` follows it in Galician: the preposition of its object, or a fixed complement."""

    base: str
    third: str
    past: str
    ing: str
    infinitive: str
    tail: str
    aspect: str
    objects: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


class Determiner(NamedTuple):
    """A determiner: English (singular, plural), Galician (o, a, os, as), and what follows the Galician noun."""

    english: tuple[str, str]
    forms: tuple[str, ...]
    tail: str = ""


# -- Reading the tables ------------------------------------------------------------------------------------------------

_IRREGULAR_PLURALS = {
    "man": "men", "woman": "women", "gentleman": "gentlemen", "wolf": "wolves", "mouse": "mice", "knife": "knives",
    "scarf": "scarves", "shelf": "shelves", "tomato": "tomatoes", "potato": "potatoes",
}  # fmt: skip


def _entries(table: str) -> list[list[str]]:
    return [[form.replace("_", " ") for form in entry.split()] for entry in table.split("|")]


def _phrases(table: str) -> tuple[Bilingual, ...]:
    """Read "English = Galician | ..."."""
    return tuple(Bilingual(*(text.strip() for text in entry.split("="))) for entry in table.split("|"))


def _with_s(word: str) -> str:
    """The regular English plural, or third person of a verb."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "go", "do")) else "s")


def _nouns(kind: str, table: str) -> tuple[Noun, ...]:
    """Read "english article singular plural | ...": as in a dictionary, the article o or a tells the gender."""
    nouns = []
    for english, article, singular, plural in _entries(table):
        english_plural = "-" if plural == "-" else _IRREGULAR_PLURALS.get(english, _with_s(english))
        nouns.append(Noun((english, english_plural), (singular, plural), article == "a", kind))
    return tuple(nouns)


def _four_forms(forms: list[str]) -> tuple[str, ...]:
    """From one form in -o, or the singular and plural of both genders, or all four."""
    if len(forms) == 1:
        return tuple(forms[0].removesuffix("o") + ending for ending in ("o", "a", "os", "as"))
    return (forms[0], forms[0], forms[1], forms[1]) if len(forms) == 2 else tuple(forms)


def _determiners(table: str) -> tuple[Determiner, ...]:
    return tuple(Determiner((row[0], row[1]), tuple(row[2:])) for row in _entries(table))


def _verbs(aspect: str, table: str) -> tuple[Verb, ...]:
    """Read "base/past/ing particle = infinitive tail : objects @ places | ..."; regular English forms are left out."""
    entries = re.findall(r"([^=|]+)=([^:@|]+)(?::([^@|]*))?(?:@([^|]*))?", table)
    return tuple(_verb(aspect, *(column.strip() for column in entry)) for entry in entries)


def _verb(aspect: str, english: str, galician: str, objects: str, places: str) -> Verb:
    word, _, particle = english.partition(" ")
    base, *irregular = word.split("/")
    stem = base[:-1] if base.endswith("e") and not base.endswith("ee") else base
    past = irregular[0] if irregular else base[:-1] + "ied" if _with_s(base).endswith("ies") else stem + "ed"
    ing = irregular[1] if len(irregular) > 1 else stem + "ing"
    third = "has" if base == "have" else _with_s(base)
    base, third, past, ing = (f"{form} {particle}".strip() for form in (base, third, past, ing))
    infinitive, _, tail = galician.partition(" ")
    return Verb(base, third, past, ing, infinitive, tail, aspect, tuple(objects.split()), tuple(places.split()))


# -- Nouns -------------------------------------------------------------------------------------------------------------

PROFESSIONS = tuple(
    Adjective(english, _four_forms(forms))
    for english, *forms in _entries("""
    doctor médico | nurse enfermeiro | lawyer avogado | cook cociñeiro | sailor mariñeiro | farmer labrego
    | engineer enxeñeiro | baker panadeiro | carpenter carpinteiro | hairdresser perruqueiro | musician músico
    | teacher mestre mestra mestres mestras | writer escritor escritora escritores escritoras
    | painter pintor pintora pintores pintoras | driver condutor condutora condutores condutoras
    | student estudante estudantes | singer cantante cantantes | journalist xornalista xornalistas
    | dentist dentista dentistas
    """)
)
_NOUN_TABLES = {
    "family": """
        mother a nai - | father o pai - | sister a irmá irmás | brother o irmán irmáns | son o fillo fillos
        | daughter a filla fillas | grandmother a avoa avoas | grandfather o avó avós | aunt a tía tías
        | uncle o tío tíos | cousin o curmán curmáns
        | nephew o sobriño sobriños | niece a sobriña sobriñas | friend o amigo amigos | neighbour o veciño veciños""",
    "people": """
        man o home homes | woman a muller mulleres | boy o neno nenos | girl a nena nenas | guest o convidado convidados
        | tourist o turista turistas | lady a señora señoras | gentleman o señor señores""",
    "pet": "dog o can cans | cat o gato gatos | rabbit o coello coellos",
    "livestock": """
        horse o cabalo cabalos | cow a vaca vacas | hen a galiña galiñas | donkey o burro burros | goat a cabra cabras
        | duck o pato patos""",
    "wild": "wolf o lobo lobos | fox o raposo raposos | bear o oso osos | bird o paxaro paxaros | mouse o rato ratos",
    "fruit": """
        apple a mazá mazás | pear a pera peras | orange a laranxa laranxas | lemon o limón limóns
        | cherry a cereixa cereixas | strawberry o amorodo amorodos | banana o plátano plátanos
        | chestnut a castaña castañas | peach o pexego pexegos | fig o figo figos | tomato o tomate tomates""",
    "food": """
        bread o pan - | cheese o queixo - | honey o mel - | chocolate o chocolate - | butter a manteiga -
        | ham o xamón - | cake a torta tortas | biscuit a galleta galletas | ice_cream o xeado xeados
        | sandwich o bocadillo bocadillos""",
    "dish": """
        soup a sopa - | meat a carne - | fish o peixe - | rice o arroz - | octopus o polbo - | chicken o polo -
        | cod o bacallau - | egg o ovo ovos | potato a pataca patacas | salad a ensalada ensaladas
        | omelette a tortilla tortillas | mushroom o cogomelo cogomelos | mussel o mexillón mexillóns
        | pie a empanada empanadas""",
    "drink": """
        water a auga - | milk o leite - | wine o viño - | coffee o café - | tea o té - | beer a cervexa -
        | juice o zume - | cider a sidra -""",
    "garment": """
        shirt a camisa camisas | skirt a saia saias | jacket a chaqueta chaquetas | coat o abrigo abrigos
        | hat o sombreiro sombreiros | dress o vestido vestidos | jumper o xersei xerseis | scarf a bufanda bufandas
        | shoe o zapato zapatos | boot a bota botas | sock o calcetín calcetíns | glove a luva luvas
        | T-shirt a camiseta camisetas | belt o cinto cintos""",
    "text": """
        book o libro libros | poem o poema poemas | story o conto contos | novel a novela novelas
        | letter a carta cartas | message a mensaxe mensaxes | postcard a postal postais""",
    "press": "newspaper o xornal xornais | magazine a revista revistas",
    "item": """
        key a chave chaves | pen o bolígrafo bolígrafos | pencil o lapis lapis | umbrella o paraugas paraugas
        | ball a pelota pelotas | toy o xoguete xoguetes | map o mapa mapas | ring o anel aneis | blanket a manta mantas
        | wallet a carteira carteiras | passport o pasaporte pasaportes | ticket o billete billetes
        | notebook o caderno cadernos | photo a foto fotos | present o agasallo agasallos | candle a candea candeas""",
    "device": """
        phone o teléfono teléfonos | computer o ordenador ordenadores | camera a cámara cámaras | radio a radio radios
        | lamp a lámpada lámpadas | printer a impresora impresoras""",
    "tableware": """
        cup a cunca cuncas | glass o vaso vasos | plate o prato pratos | knife o coitelo coitelos
        | spoon a culler culleres | fork o garfo garfos | bottle a botella botellas | pot a pota potas
        | tray a bandexa bandexas""",
    "table": "table a mesa mesas | shelf o andel andeis",
    "furniture": "chair a cadeira cadeiras | bed a cama camas | sofa o sofá sofás",
    "container": """
        box a caixa caixas | bag a bolsa bolsas | drawer o caixón caixóns | suitcase a maleta maletas
        | basket a cesta cestas | wardrobe o armario armarios""",
    "opening": "door a porta portas | window a xanela xanelas",
    "vehicle": """
        car o coche coches | van a furgoneta furgonetas | lorry o camión camións | tractor o tractor tractores
        | motorbike a moto motos""",
    "transit": "bus o autobús autobuses | train o tren trens | plane o avión avións | boat o barco barcos",
    "tree": """
        tree a árbore árbores | oak o carballo carballos | apple_tree a maceira maceiras
        | chestnut_tree o castiñeiro castiñeiros""",
    "flower": "flower a flor flores | rose a rosa rosas",
    "instrument": """
        guitar a guitarra guitarras | piano o piano pianos | violin o violín violíns | flute a frauta frautas
        | drum o tambor tambores""",
    "show": "film a película películas | match o partido partidos | concert o concerto concertos",
    "song": "song a canción cancións",
    "language": """
        Galician o galego - | English o inglés - | Portuguese o portugués - | French o francés - | Italian o italiano -
        | German o alemán -""",
    "house": "house a casa casas",
    "room": """
        kitchen a cociña cociñas | room o cuarto cuartos | living_room a sala salas
        | dining_room o comedor comedores | balcony o balcón balcóns""",
    "yard": "garden o xardín xardíns",
    "settlement": "village a aldea aldeas | city a cidade cidades",
    "town": """
        street a rúa rúas | square a praza prazas | park o parque parques | forest o bosque bosques
        | harbour o porto portos""",
    "shop": "market o mercado mercados | shop a tenda tendas | supermarket o supermercado supermercados",
    "work": """
        office a oficina oficinas | school a escola escolas | hospital o hospital hospitais | farm a granxa granxas
        | library a biblioteca bibliotecas | university a universidade universidades | factory a fábrica fábricas""",
    "eatery": "restaurant o restaurante restaurantes | bar o bar bares | hotel o hotel hoteis",
    "sight": """
        church a igrexa igrexas | castle o castelo castelos | museum o museo museos | tower a torre torres
        | theatre o teatro teatros | cinema o cine cines | station a estación estacións | bridge a ponte pontes
        | pharmacy a farmacia farmacias | bakery a panadaría panadarías | airport o aeroporto aeroportos""",
    "water": "river o río ríos | sea o mar - | lake o lago lagos | beach a praia praias",
}
NOUNS = {kind: _nouns(kind, table) for kind, table in _NOUN_TABLES.items()}
NOUNS["profession"] = tuple(
    Noun((word.english, word.english + "s"), (word.forms[0], word.forms[2]), False, "profession")
    for word in PROFESSIONS
)

NAMES = {
    False: ("Antón", "Xoán", "Iago", "Martiño", "Breixo", "Roi", "Manuel", "Anxo"),
    True: ("Ana", "María", "Uxía", "Sabela", "Iria", "Carme", "Noa", "Antía"),
}
CITIES = _phrases("""
    Vigo = Vigo | Lugo = Lugo | Ourense = Ourense | Pontevedra = Pontevedra | Santiago = Santiago | Ferrol = Ferrol
    | A Coruña = A Coruña | Madrid = Madrid | Lisbon = Lisboa | Paris = París | London = Londres | Rome = Roma
    | Dublin = Dublín | Galicia = Galicia | Portugal = Portugal | France = Francia | Italy = Italia | Ireland = Irlanda
    | England = Inglaterra | Germany = Alemaña
""")

# -- Determiners and numbers -------------------------------------------------------------------------------------------

THE, A, THIS, THAT, ANOTHER, MANY, ALL_THE, SOME, WHICH, HOW_MANY = _determiners("""
    the the o a os as | a - un unha - - | this these este esta estes estas | that those ese esa eses esas
    | another - outro outra - - | - many - - moitos moitas | - all_the - - todos_os todas_as | - some - - uns unhas
    | which which que que que que | - how_many - - cantos cantas
""")
# What locates a thing: one place, not several.
THE_ONE, THIS_ONE, THAT_ONE = (Determiner((word.english[0], "-"), word.forms) for word in (THE, THIS, THAT))
POSSESSIVES = _determiners("""
    my my o_meu a_miña os_meus as_miñas | your your o_teu a_túa os_teus as_túas | his his o_seu a_súa os_seus as_súas
    | her her o_seu a_súa os_seus as_súas | our our o_noso a_nosa os_nosos as_nosas
    | their their o_seu a_súa os_seus as_súas
""")
BARE_PLURAL, BARE_MASS = Determiner(("-", ""), ("",) * 4), Determiner(("", "-"), ("",) * 4)

_UNITS = _phrases("""
    one = un | two = dous | three = tres | four = catro | five = cinco | six = seis | seven = sete | eight = oito
    | nine = nove | ten = dez | eleven = once | twelve = doce | thirteen = trece | fourteen = catorce | fifteen = quince
    | sixteen = dezaseis | seventeen = dezasete | eighteen = dezaoito | nineteen = dezanove
""")
_TENS = _phrases("""
    twenty = vinte | thirty = trinta | forty = corenta | fifty = cincuenta | sixty = sesenta | seventy = setenta
    | eighty = oitenta | ninety = noventa
""")


def number(value: int, feminine: bool = False) -> Bilingual:
    """The number from 1 to 99; in Galician one and two have a feminine."""
    if value < 20:
        english, galician = _UNITS[value - 1]
        return Bilingual(english, {"un": "unha", "dous": "dúas"}.get(galician, galician) if feminine else galician)
    tens = _TENS[value // 10 - 2]
    if value % 10 == 0:
        return tens
    units = number(value % 10, feminine)
    return Bilingual(f"{tens.english}-{units.english}", f"{tens.galician} e {units.galician}")


NUMERALS = tuple(
    Determiner(("-", number(n).english), ("-", "-", number(n).galician, number(n, feminine=True).galician))
    for n in range(2, 13)
)

# -- Adjectives --------------------------------------------------------------------------------------------------------

THINGS = ("fruit", "food", "dish", "drink", "garment", "text", "item", "device", "tableware", "container")
_GOODS = "garment tableware table furniture container opening vehicle item device"
_PLACES = "house room yard settlement town shop work eatery sight"
_NATURE = "pet livestock wild tree flower"
_HUMANS = "people profession"
_GRADED, _ABSOLUTE = True, False
# Each line is a scale. What is said of a "person" is a state, which only follows a verb.
_SCALES = (
    ("ser", _ABSOLUTE, f"{_GOODS} house", """red vermello | white branco | black negro | yellow amarelo
        | blue azul azuis | green verde verdes | brown marrón marróns | grey gris grises"""),
    ("ser", _ABSOLUTE, "pet livestock wild", "black negro | white branco | brown marrón marróns"),
    ("ser", _GRADED, f"{_GOODS} {_PLACES} {_NATURE} instrument", "big grande grandes | small pequeno"),
    ("ser", _GRADED, f"{_GOODS} text press instrument {_PLACES}", "new novo | old vello"),
    ("ser", _GRADED, "garment furniture vehicle device eatery instrument", "expensive caro | cheap barato"),
    ("ser", _GRADED, f"garment {_PLACES} tree flower", "beautiful fermoso | ugly feo"),
    ("ser", _GRADED, "text song show", "beautiful fermoso"),
    ("ser", _GRADED, "vehicle transit", "fast rápido | slow lento"),
    ("ser", _GRADED, "furniture table", "heavy pesado | light lixeiro"),
    ("ser", _GRADED, "text press show", """interesting interesante interesantes | boring aburrido
        | good bo boa bos boas | bad malo"""),
    ("ser", _GRADED, "text show song", "long longo | short curto"),
    ("ser", _GRADED, "text", "difficult difícil difíciles | easy fácil fáciles"),
    ("ser", _GRADED, "song show sight eatery people", "famous famoso"),
    ("ser", _GRADED, "fruit", "sweet doce doces"),
    ("ser", _GRADED, "fruit dish", "fresh fresco"),
    ("estar", _GRADED, "fruit", "ripe maduro"),
    ("estar", _ABSOLUTE, "food dish drink", "delicious delicioso"),
    ("estar", _GRADED, "drink", "hot quente quentes | cold frío"),
    ("estar", _GRADED, "dish", "salty salgado"),
    ("estar", _GRADED, "garment tableware table furniture vehicle room", "clean limpo | dirty sucio"),
    ("estar", _ABSOLUTE, "container transit eatery", "empty baleiro | full cheo"),
    ("estar", _ABSOLUTE, "tableware device", "broken roto"),
    ("estar", _ABSOLUTE, "opening shop", "open aberto | closed pechado"),
    ("ser", _GRADED, _HUMANS, "young novo | old vello"),
    ("ser", _GRADED, _HUMANS, "tall alto | short baixo"),
    ("ser", _GRADED, _HUMANS, "rich rico | poor pobre pobres"),
    ("ser", _GRADED, _HUMANS, """kind amable amables | nice simpático | shy tímido | brave valente valentes
        | generous xeneroso | serious serio | funny divertido"""),
    ("ser", _GRADED, _HUMANS, """intelligent intelixente intelixentes | strong forte fortes | lazy preguiceiro
        | hard-working traballador traballadora traballadores traballadoras"""),
    ("ser", _ABSOLUTE, _HUMANS, """Galician galego | Italian italiano | Irish irlandés irlandesa irlandeses irlandesas
        | Portuguese portugués portuguesa portugueses portuguesas | English inglés inglesa ingleses inglesas
        | French francés francesa franceses francesas"""),
    ("estar", _GRADED, "person", """happy contento | sad triste tristes | angry enfadado | worried preocupado
        | nervous nervioso | bored aburrido | calm tranquilo"""),
    ("estar", _GRADED, "person", "tired canso | ill enfermo | busy ocupado"),
    ("estar", _ABSOLUTE, "person", "alone só soa sós soas | ready preparado"),
)  # fmt: skip
ADJECTIVES: dict[str, tuple[Adjective, ...]] = {}
for _scale, (_copula, _gradable, _kinds, _table) in enumerate(_SCALES):
    _members = [Adjective(row[0], _four_forms(row[1:]), _copula, _gradable, _scale) for row in _entries(_table)]
    for _kind in _kinds.split():
        ADJECTIVES[_kind] = (*ADJECTIVES.get(_kind, ()), *_members)

# -- Verbs -------------------------------------------------------------------------------------------------------------

# How a verb takes time: "lasting" in any tense, "whole" without a progressive, "mishap" without plans either,
# "state" without both and with the Galician imperfect for a past.
TRANSITIVES = (
    *_verbs("lasting", """
        eat/ate = comer : fruit food dish @ room eatery | drink/drank = beber : drink @ room eatery
        | cook = cociñar : dish @ house | prepare = preparar : dish @ house | order = pedir : dish drink @ eatery
        | try = probar : fruit food dish drink @ eatery | pay/paid for = pagar : dish drink @ eatery
        | buy/bought = mercar : fruit food dish drink garment text press item device tableware furniture @ shop
        | sell/sold = vender : fruit food garment item device furniture vehicle @ shop
        | look for = buscar : item garment device pet livestock @ house town
        | bring/brought = traer : fruit food drink item text tableware | carry = levar : container
        | wear/wore = levar : garment | wash = lavar : garment tableware vehicle
        | clean = limpar : tableware table furniture vehicle room opening
        | paint = pintar : table furniture opening house room
        | draw/drew = debuxar : pet livestock wild tree flower @ work | open = abrir : opening container
        | close = pechar : opening container | read/read = ler : text press @ room yard town
        | write/wrote = escribir : text @ room yard | translate = traducir : text | send/sent = mandar : text
        | repair = arranxar : device vehicle | use = usar : device tableware | turn on = acender : device
        | turn off = apagar : device | plant = plantar : tree flower @ yard town | pick = coller : fruit @ yard
        | visit = visitar : family sight
        | help = axudar a : family people profession @ house work | wait for = agardar por : family transit @ sight
        | talk about = falar de : family text show @ eatery | think/thought about = pensar en : family
        | dream about = soñar con : pet livestock wild | play with = xogar con : pet @ yard room
        | study = estudar : language @ work | learn = aprender : language | teach/taught = ensinar : language
        | speak/spoke = falar : language @ work | play = tocar : instrument @ room yard
        | listen to = escoitar : song @ room | sing/sang = cantar : song @ room yard | watch = ver : show
        | choose/chose = escoller : garment text show | drive/drove = conducir : vehicle
        | take/took = coller : transit"""),
    *_verbs("whole", """
        see/saw = ver : people pet livestock wild sight transit tree flower @ town | receive = recibir : text
        | find/found = atopar : item garment device @ house town | remember = lembrar : family show song"""),
    *_verbs("mishap", """
        understand/understood = entender : text song | lose/lost = perder : item garment @ town
        | forget/forgot/forgetting = esquecer : item garment | break/broke = romper : tableware device"""),
    *_verbs("state", """
        have/had = ter : pet livestock vehicle device item garment instrument
        | need = necesitar : item device tableware container garment | want = querer : fruit food dish drink
        | prefer/preferred/preferring = preferir : fruit food dish drink garment text
        | know/knew = coñecer : family people profession sight song"""),
)  # fmt: skip
ACTIVITIES = _verbs("lasting", """
    work = traballar @ work eatery | sleep/slept = durmir @ house room | swim/swam/swimming = nadar @ water
    | fish = pescar @ water | walk = camiñar @ town | run/ran/running = correr @ town | dance = bailar @ town eatery
    | sing/sang = cantar @ room town | rest = descansar @ room yard | study = estudar @ work room
    | wait = agardar @ town sight | play = xogar @ yard town | cook = cociñar @ house
    | have/had breakfast = almorzar @ room eatery | have/had lunch = xantar @ room eatery settlement
    | have/had dinner = cear @ room eatery settlement | go/went for a walk = pasear @ town settlement
    | play football = xogar ao fútbol @ town | play cards = xogar ás cartas @ house eatery
    | play chess = xogar ao xadrez @ room eatery | play the bagpipes = tocar a gaita @ yard town
    | watch television = ver a televisión @ room | listen to music = escoitar música @ room yard
    | listen to the radio = escoitar a radio @ room | do/did the homework = facer os deberes @ room
    | wash the dishes = lavar os pratos @ house | make/made the bed = facer a cama
    | ride/rode a bicycle = andar en bicicleta @ town settlement | take/took photos = sacar fotos @ town sight
    | tell/told stories = contar contos @ room yard town | do/did the shopping = facer a compra @ shop settlement
""")  # fmt: skip
MOTIONS = _verbs("whole", "go/went = ir | come/came = vir | return = volver")
CREATURE_VERBS = _verbs("lasting", """
    sleep/slept = durmir | run/ran/running = correr | rest = descansar | eat/ate = comer
    | drink/drank water = beber auga
""")  # fmt: skip
LIVE, LIKE, COST = _verbs("state", "live = vivir | like = gustar | cost/cost = custar")
RAIN, SNOW = _verbs("lasting", "rain = chover | snow = nevar")
DEPARTING = _verbs("whole", "arrive = chegar | leave/left = saír")
SER, ESTAR, TER, IR = (Verb("be", "is", "was", "being", verb, "", "state") for verb in ("ser", "estar", "ter", "ir"))
COPULAS = {"ser": SER, "estar": ESTAR}

# The irregular forms that the tenses of the phrasebook reach, in the order eu, ti, el, nós, vós, eles.
_IRREGULAR_VERBS = {
    ("ser", "present"): "son es é somos sodes son",
    ("ser", "imperfect"): "era eras era eramos erades eran",
    ("estar", "present"): "estou estás está estamos estades están",
    ("ter", "present"): "teño tes ten temos tedes teñen",
    ("ter", "imperfect"): "tiña tiñas tiña tiñamos tiñades tiñan",
    ("ir", "present"): "vou vas vai imos ides van",
    ("ir", "preterite"): "fun fuches foi fomos fostes foron",
    ("vir", "present"): "veño vés vén vimos vindes veñen",
    ("vir", "preterite"): "vin viñeches veu viñemos viñestes viñeron",
    ("ver", "present"): "vexo ves ve vemos vedes ven",
    ("ver", "preterite"): "vin viches viu vimos vistes viron",
    ("ler", "present"): "leo les le lemos ledes len",
    ("facer", "present"): "fago fas fai facemos facedes fan",
    ("facer", "preterite"): "fixen fixeches fixo fixemos fixestes fixeron",
    ("facer", "future"): "farei farás fará faremos faredes farán",
    ("traer", "present"): "traio traes trae traemos traedes traen",
    ("traer", "preterite"): "trouxen trouxeches trouxo trouxemos trouxestes trouxeron",
    ("traer", "imperfect"): "traía traías traía traïamos traïades traían",
    ("saír", "present"): "saio saes sae saímos saídes saen",
    ("durmir", "present"): "durmo dormes dorme durmimos durmides dormen",
    ("pedir", "present"): "pido pides pide pedimos pedides piden",
    ("preferir", "present"): "prefiro prefires prefire preferimos preferides prefiren",
}
_ENDINGS = {
    ("ar", "present"): "o as a amos ades an",
    ("er", "present"): "o es e emos edes en",
    ("ir", "present"): "o es e imos ides en",
    ("ar", "preterite"): "ei aches ou amos astes aron",
    ("er", "preterite"): "ín iches eu emos estes eron",
    ("ir", "preterite"): "ín iches iu imos istes iron",
    ("ar", "imperfect"): "aba abas aba abamos abades aban",
    ("er", "imperfect"): "ía ías ía iamos iades ían",
    ("ir", "imperfect"): "ía ías ía iamos iades ían",
}
_FUTURE_ENDINGS = "ei ás á emos edes án"


def _respell(stem: str, theme: str, ending: str) -> str:
    """Put the ending on the stem and keep its sound: busc + ei = busquei, coñec + o = coñezo."""
    if theme == "ar" and ending[0] == "e":
        for hard, soft in (("c", "qu"), ("g", "gu"), ("z", "c")):
            if stem.endswith(hard):
                return stem.removesuffix(hard) + soft + ending
    if theme != "ar" and ending[0] == "o" and stem.endswith("c"):
        return stem.removesuffix("c") + "z" + ending
    return stem + ending


@cache
def conjugate(infinitive: str, form: str, person: int) -> str:
    """A simple form of a Galician verb, from the table of irregular ones or by rule."""
    if irregular := _IRREGULAR_VERBS.get((infinitive, form)):
        return irregular.split()[person]
    if form == "future":
        return infinitive + _FUTURE_ENDINGS.split()[person]
    stem, theme = infinitive[:-2], infinitive[-2:]
    return _respell(stem, theme, _ENDINGS[theme, form].split()[person])


def prohibition(infinitive: str) -> str:
    """What follows "non" to tell ti not to: comer gives comas, buscar busques, facer fagas."""
    stem, theme = conjugate(infinitive, "present", 0)[:-1], infinitive[-2:]
    return _respell(stem, theme, "es" if theme == "ar" else "as")


# -- Prepositions ------------------------------------------------------------------------------------------------------

_ARTICLES = ("o", "a", "os", "as", "un", "unha", "uns", "unhas")
_DEMONSTRATIVES = ("este", "esta", "estes", "estas", "ese", "esa", "eses", "esas", "outro", "outra", "outros", "outras")
_PRONOUNS = ("el", "ela", "eles", "elas")
_CONTRACTIONS = {
    "a": dict(zip(_ARTICLES, ("ao", "á", "aos", "ás"), strict=False)),
    "por": dict(zip(_ARTICLES, ("polo", "pola", "polos", "polas"), strict=False)),
    "con": dict(zip(_ARTICLES, ("co", "coa", "cos", "coas", "cun", "cunha", "cuns", "cunhas"), strict=True)),
    "de": {word: f"d{word}" for word in (*_ARTICLES, *_DEMONSTRATIVES, *_PRONOUNS)},
    "en": {word: f"n{word}" for word in (*_ARTICLES, *_DEMONSTRATIVES, *_PRONOUNS)},
}


def contract(preposition: str, phrase: str) -> str:
    """The preposition before the phrase: de + a casa = da casa, preto de + o río = preto do río."""
    before, _, last = preposition.rpartition(" ")
    first, _, rest = phrase.partition(" ")
    if contracted := _CONTRACTIONS.get(last, {}).get(first.lower()):
        return f"{before} {contracted} {rest}".strip()
    return f"{preposition} {phrase}".strip()


# The English preposition of a place is "in" unless named here; the Galician one is always "en".
PLACE_PREPOSITIONS = {
    "balcony": "on", "beach": "on", "farm": "on", "bridge": "on", "market": "at", "supermarket": "at", "school": "at",
    "hospital": "at", "library": "at", "university": "at", "restaurant": "at", "hotel": "at", "museum": "at",
    "theatre": "at", "cinema": "at", "station": "at", "pharmacy": "at", "bakery": "at", "airport": "at",
}  # fmt: skip
RELATIONS = dict(
    _phrases("""
    on = enriba de | under = debaixo de | behind = detrás de | in front of = diante de | next to = a carón de
    | near = preto de | far from = lonxe de
    """)
)
# Where things of a kind are found: a relation and the kinds of its landmark.
_SPOTS = {
    "fruit food dish drink tableware device": "on: table | in: room",
    "garment item text press": "on: table furniture | under: table furniture | in: container | in: room house",
    "pet": "under: table furniture tree | behind: opening house | in front of: house opening | in: yard room",
    "livestock": "under: tree | behind: house | in front of: house | near: house water | in: yard",
    "wild tree flower": "near: house water settlement | behind: house sight | in: town | next to: water",
    "vehicle": "in front of: house sight eatery | behind: house sight | in: town",
    "family people profession": "in: room yard town shop eatery sight | in front of: sight | near: water opening",
    "shop work eatery sight": "near: sight | next to: sight | behind: sight | far from: water settlement | in: town",
}
SPOTS = {
    kind: [(relation.strip(), kinds.split()) for relation, kinds in (spot.split(":") for spot in spots.split("|"))]
    for group, spots in _SPOTS.items()
    for kind in group.split()
}

# -- Times and small words ---------------------------------------------------------------------------------------------

DAYS = tuple(
    (english, singular, plural)
    for english, singular, plural in _entries("""
    Monday luns luns | Tuesday martes martes | Wednesday mércores mércores | Thursday xoves xoves
    | Friday venres venres | Saturday sábado sábados | Sunday domingo domingos
    """)
)
MONTHS = _phrases("""
    January = xaneiro | February = febreiro | March = marzo | April = abril | May = maio | June = xuño | July = xullo
    | August = agosto | September = setembro | October = outubro | November = novembro | December = decembro
""")
SEASONS = _phrases("spring = a primavera | summer = o verán | autumn = o outono | winter = o inverno")
HABITUAL_TIMES = _phrases("""
    every day = todos os días | every week = todas as semanas | in the morning = pola mañá
    | in the afternoon = pola tarde | at night = pola noite
""")
PAST_TIMES = _phrases("""
    yesterday = onte | last night = onte á noite | this morning = esta mañá | yesterday afternoon = onte pola tarde
    | last week = a semana pasada | last month = o mes pasado | last year = o ano pasado
""")
FUTURE_TIMES = _phrases("""
    today = hoxe | tomorrow = mañá | tomorrow morning = mañá pola mañá | this afternoon = esta tarde
    | tonight = esta noite | next week = a semana que vén | next month = o mes que vén | next year = o ano que vén
""")
PRESENT_TIMES = _phrases("now = agora | right now = agora mesmo | at the moment = neste momento")
TRANSPORT = _phrases("""
    by train = en tren | by plane = en avión | by bus = en autobús | by car = en coche | by bicycle = en bicicleta
    | on foot = a pé
""")
MANNERS = _phrases("well = ben | badly = mal | a lot = moito | too much = demasiado | very little = moi pouco")
PRESENT_ADVERBS = _phrases("""
    always = sempre | never = nunca | almost always = case sempre | almost never = case nunca | sometimes = ás veces
    | also = tamén
""")
PAST_ADVERBS = _phrases("never = nunca | also = tamén | already = xa")
# In the order of the persons of a verb.
COMPANIONS = _phrases("""
    with me = comigo | with you = contigo | with him = con el | with us = connosco | with you all = convosco
    | with her = con ela
""")
# What English says with "be" and Galician with "ter" (teño fame) or "ir" (vai frío).
FEELINGS = _phrases("""
    hungry = fame | thirsty = sede | cold = frío | sleepy = sono | afraid = medo | in a hurry = présa | right = razón
    | lucky = sorte
""")
PREMISES = _phrases("it rains = chove | it snows = neva | it is cold = vai frío | it is sunny = vai sol")
WEATHER = _phrases("cold = frío | hot = calor | windy = vento | sunny = sol")

# -- Fixed phrases -----------------------------------------------------------------------------------------------------

OPINIONS = _phrases("""
    I think that = penso que | I know that = sei que | you know that = sabes que | we believe that = cremos que
    | they say that = eles din que | everybody says that = todos din que | it is true that = é verdade que
    | I am sure that = estou seguro de que | I do not know if = non sei se | nobody knows if = ninguén sabe se
""")
KNOWING = _phrases(
    "I know = sei | I do not know = non sei | they do not know = eles non saben | nobody knows = ninguén sabe"
)
QUESTION_WORDS = _phrases("where = onde | when = cando | why = por que")
GREETINGS = _phrases("""
    hello = ola | good morning = bos días | good afternoon = boas tardes | good night = boas noites | goodbye = adeus
    | see you tomorrow = ata mañá | see you later = ata logo | thanks = grazas | thank you very much = moitas grazas
    | congratulations = parabéns | happy birthday = feliz aniversario | merry Christmas = bo Nadal
    | happy New Year = feliz aninovo | enjoy your meal = bo proveito | have a good trip = boa viaxe
    | good luck = boa sorte
""")
FIXED_PHRASES = _phrases("""
    You are welcome. = De nada. | Please. = Por favor. | Excuse me. = Desculpa. | I am sorry. = Síntoo.
    | What is your name? = Como te chamas? | What time is it? = Que hora é? | What is this? = Que é isto?
    | Of course! = Por suposto! | I do not know. = Non sei. | I do not understand. = Non entendo.
    | Me too! = Eu tamén! | Me neither. = Eu tampouco. | Yes. = Si. | No. = Non. | Maybe. = Quizais.
    | Be careful! = Coidado! | Help! = Socorro! | Cheers! = Saúde! | What a pity! = Que mágoa!
    | Nice to meet you. = Encantado de coñecerte. | Nothing. = Nada. | Silence! = Silencio! | Let's go! = Imos!
""")
