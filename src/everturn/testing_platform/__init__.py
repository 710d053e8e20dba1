"""For people who write adapters: the questions that every platform is asked, our own and theirs.

    from everturn.testing_platform import Question, questions_for

    @pytest.mark.parametrize("question", questions_for(MyDriver.offers, MyDriver.failures), ids=str)
    async def test_it_keeps_the_contract(question: Question, tmp_path: Path) -> None:
        async with MyDriver(tmp_path) as driver:
            await question(driver, tmp_path)

A platform joins by its driver, which lets people act there and sees what they see. Nothing here needs pytest.
"""

from everturn.testing_platform.driver import ABILITIES, Adapter, Driver, Pauses
from everturn.testing_platform.questions import QUESTIONS, Question, questions_for

__all__ = ["ABILITIES", "QUESTIONS", "Adapter", "Driver", "Pauses", "Question", "questions_for"]
